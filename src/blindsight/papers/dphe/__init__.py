"""R. Yonetani et al., "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic Encryption", ICCV 2017.

Importing this package makes the schemes of `protocol` known: "dphe-published", "dphe-single" and "dphe-all"; and with
`learning` what members send as published.
"""

from blindsight.papers.dphe.learning import PublishedClassifier, PublishedKMeans
from blindsight.papers.dphe.protocol import ALL, PUBLISHED, SINGLE

__all__ = ["ALL", "PUBLISHED", "SINGLE", "PublishedClassifier", "PublishedKMeans"]
