"""What operators see and set: settings, limits, metrics, logs, readiness."""
