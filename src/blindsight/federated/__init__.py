"""Learning across machines: the one loop of `rounds`, with every party elsewhere and a server between them.

| part | what |
| --- | --- |
| `identity` | a party's keys, sealed messages, the folder they lie in, whom it knows, and how a node proves who it is |
| `node` | what a member (`rounds.Member`) and the key generator do with a message |
| `server` | how a run begins, what the server keeps, and `RemoteSums`: the backend of `rounds.Run` over `sums.Engine` |
| `updates` | what members send of what any Flower app learned |
| `invite`, `commands` | joining with one file and one code, TLS, and the programs that a party starts |
| `runs` | for the owner of a party: which runs it keeps, and how to forget one |
| `flower` | Flower as the carrier; the only part that needs it |

A round, from the server and back: `flower/app` (or `flower.strategy`, around a strategy of your own) asks `server` for
the calls, `flower.transport` carries them, `flower.mod` on the node hands each to `node`, which lets the task's learner
learn and `sums.roles` answer; `sums.engine` adds the replies up.
"""
