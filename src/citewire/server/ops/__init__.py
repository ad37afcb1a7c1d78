"""Operations: settings, limits, metrics, logs, readiness."""
