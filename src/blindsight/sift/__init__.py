"""SensorSift: a person names what must stay private, an app what it needs; a verified transform lets only that out."""
