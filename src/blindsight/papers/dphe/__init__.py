"""R. Yonetani et al., "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic Encryption", ICCV 2017.

| in the document | here |
| --- | --- |
| Figure 1, section 2.1: learn, send, average | `blindsight.rounds` |
| Figure 2, Equations 1 and 2: sums under Paillier | `blindsight.crypto.paillier`, `crypto.encoding` |
| Equation 3, shards; Figure 3, Equations 4 to 8: permutations | `blindsight.sums.dphe`, `protocol` |
| Algorithm 1, Theorem 8 (supplement) | `protocol` |
| section 3, Tables 1, 3 and 4: learning and its baselines | `learning`, `baselines`, `compare` |
| Table 2, Figure 4: sparsity, encryption time, owners | `learning.search_strength`, `data.partition` |
| supplement, Definitions 1 to 4, Corollaries 5 and 6 | `crypto.permutation` |
| supplement, Lemma 3, Lemma 7 | `crypto.paillier`, `blindsight.sums.dphe` |
| supplement, section 2, Equations 1 to 6: what updates show | `attacks`, `settings`, `blindsight.audit.recovery` |
| supplement, Tables 1 and 2: frequent classes, clusters | `blindsight.metrics.retrieval`, `learning` |
| section 2.5, who may collude | `coalitions` |

Importing this package makes the schemes of `protocol` known: "dphe-published", "dphe-single" and "dphe-all"; and with
`learning` what members send as published.
"""

from blindsight.papers.dphe.learning import PublishedClassifier, PublishedKMeans
from blindsight.papers.dphe.protocol import ALL, PUBLISHED, SINGLE

__all__ = ["ALL", "PUBLISHED", "SINGLE", "PublishedClassifier", "PublishedKMeans"]
