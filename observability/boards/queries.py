"""Forms of queries that several dashboards ask, and the choices on top of them."""

from observability.panels import Query, Variable

MEMORY = Variable("instance", "Memory server", "label_values(memory_worker_age_seconds, instance)")
EMBED = Variable("embed", "Embedding server", "label_values(embed_model_ready, instance)")
OF_MEMORY = 'instance=~"$instance"'
OF_EMBED = 'instance=~"$embed"'
RECALLS = 'operation=~"recall|recall_with_context"'
WINDOW = "[$__rate_interval]"


def rate(metric: str, labels: str, by: str = "instance") -> str:
    """Events a second, added up by these labels."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}{WINDOW}))"


def quantile(share: float, histogram: str, labels: str, by: str = "instance") -> str:
    """The value below which that share of the observations lie."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', labels, f'{by}, le')})"


def mean(histogram: str, labels: str, by: str = "instance") -> str:
    """The mean of the observations; nothing where there were none."""
    return f"{rate(f'{histogram}_sum', labels, by)} / ({rate(f'{histogram}_count', labels, by)} > 0)"


def quantiles(histogram: str, labels: str, by: str = "instance") -> tuple[Query, ...]:
    """Median and worst hundredth."""
    return tuple(
        Query(quantile(share, histogram, labels, by), f"{{{{{by}}}}} p{round(share * 100)}") for share in (0.5, 0.99)
    )
