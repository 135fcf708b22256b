"""Learning across machines: the protocols of `learn`, with every party elsewhere and a server that carries bytes.

| part | what |
| --- | --- |
| `identity`, `members`, `home`, `certificates` | who a party is, whom it knows, what lies on its disk |
| `courier`, `directory`, `metered` | how the server reaches the others, and which node is who |
| `sums` | encrypted sums: the user's, the key generator's and the aggregator's end of every scheme |
| `lessons`, `courses`, `teaching`, `updates` | what is learned: classifiers, clusters, or any model's updates |
| `sharing` | selective sharing: participants and the parameter server |
| `statements` | what a run protects |
| `flower` | Flower as the carrier; the only part that needs it |
| `crowd`, `hierarchy`, `costmodel`, `carriage` | many owners: simulated, planned, predicted |
"""
