"""What Prometheus, Alertmanager and Grafana need to watch both services; the dashboards are written by this package."""
