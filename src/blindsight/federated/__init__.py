"""Learning across machines: the protocols of `sums` and `learn`, with every party elsewhere and a server between them.

| part | what |
| --- | --- |
| `identity` | a party's keys, sealed messages, the folder they lie in, whom it knows, and how a node proves who it is |
| `node` | what a member and the key generator do with a message |
| `server` | how a run begins, its rounds over `sums.Engine`, what the server keeps; what a run protects |
| `task` | what is learned: classifiers, clusters, or any model's updates |
| `invite`, `commands` | joining with one file and one code, and the programs that a party starts |
| `runs`, `certificates` | for the owner of a party: its runs, and TLS |
| `sharing` | selective sharing: participants, and the server that they upload to |
| `flower` | Flower as the carrier; the only part that needs it |
"""
