"""Y. Wang, S. Lu, L. Zhang, "Searching Privately by Imperceptible Lying", ACM Multimedia 2020.

| in the document | here |
| --- | --- |
| Definition 1, Theorems 2 and 3, Equations 1 to 3: differential privacy | `blindsight.dp.accounting`, `dp.mechanisms` |
| Algorithm 1, Theorem 4, Lemma 5, Lemma 7: random flipping | `flipping` |
| Algorithm 2, Theorem 6: PHashing | `published.PHashing` |
| Algorithm 3, Equations 4 and 5, Theorem 8: PITQ | `published.PITQ` |
| Tables 1 and 2, Figure 3: learners and comparison | `learners`, `deep`, `blindsight.search.itq`, `compare` |
| Figure 1: answers of private codes | `blindsight.search.building.draw_answers` |
| Figure 2: precision and recall by radius | `blindsight.metrics.retrieval.radius_precision_recall`, `chapter` |
| what the mechanisms prove under attack | `mechanisms` |
"""
