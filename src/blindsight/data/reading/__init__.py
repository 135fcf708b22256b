"""Collections on the user's own disk: pictures decoded safely, duplicates dropped, labels from folders and tables."""
