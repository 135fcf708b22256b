"""PPDL: M. Bu, "Privacy Preserving Deep Learning for Image Classification" (2019), as published and what it proves.

| in the document | here |
| --- | --- |
| section 6, Figure 3, Table 3: server, participants, hyper-parameters | `protocol` |
| section 6, largest gradients, value clipping, Laplace noise | `noise` |
| section 6, epsilon = 1 | `cost` |
| section 4, Figure 4: 28 days, moving window | `days`, `methods`, `study` |
| section 3, Table 1: public and later photos | `days.schedule_days` |
| section 5, Figure 2, Table 2: networks and optimisers | `study.Training`, `softmax`, `vgg16`, `learn.modules` |
| what uploads show, what the noise comes to | `uploads`, `gradients`, `mechanisms` |

What of it a user needs, a network of her own with a stated epsilon, is `blindsight.FederatedNetwork`.
"""
