"""The page of metrics as Prometheus reads it."""

from prometheus_client.parser import text_string_to_metric_families

from sluicegate.coordinator.observe.metrics import PREFIX, Metrics


def value_of(metrics: Metrics, name: str, **labels: str) -> float | None:
    """The value of a series on the page; None if it is not there."""
    return next(
        (
            sample.value
            for family in text_string_to_metric_families(metrics.render().decode())
            for sample in family.samples
            if sample.name == PREFIX + name and sample.labels == labels
        ),
        None,
    )
