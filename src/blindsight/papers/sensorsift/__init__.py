"""M. Enev et al., "SensorSift: Balancing Sensor Data Privacy and Utility", ACSAC 2012.

| in the document | here |
| --- | --- |
| Table 1, Figure 1: included and unincluded mode | `blindsight.sift.platform` |
| Figure 2, Equations 1 to 3, Algorithm 1: PPLS | `blindsight.sift.ppls` |
| section 3: five classifiers, threshold | `blindsight.sift.attackers`, `sift.verify` |
| section 5: six planes, principal components | `blindsight.data.pixels` |
| Equations 4 and 5, Table 2: accuracies | `blindsight.metrics.classification` |
| section 7, Figure 3: losses by K and lambda | `study`, `compare` |
| section 7, Figure 4, Equation 6, Figure 5: matrices, overlap, regions | `analysis` |
| section 7: streams; section 8: collusion | `blindsight.sift.stream`, `sift.union` |
| releases that cheat the published verifier | `cheats`, `claims` |
| a method of our own to compare with | `adversarial` |
"""
