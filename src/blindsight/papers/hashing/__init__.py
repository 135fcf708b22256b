"""Z. Wang, Y. Lu, Y. Zhang, "Searching Privately by Imperceptible Lying", ACM Multimedia 2020."""
