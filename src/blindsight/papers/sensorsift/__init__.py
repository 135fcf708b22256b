"""M. Enev et al., "SensorSift: Balancing Sensor Data Privacy and Utility", ACSAC 2012."""
