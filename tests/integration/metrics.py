"""The metrics of a running service, as Prometheus reads them."""

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from sluicegate.coordinator.service.service import Service


async def metrics_of(service: Service) -> str:
    """Return the page."""
    url = f"http://127.0.0.1:{service.http_port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


async def samples(service: Service) -> dict[str, float]:
    """Return the samples of the stream, by name."""
    return {
        sample.name.removeprefix("sluicegate_"): sample.value
        for family in text_string_to_metric_families(await metrics_of(service))
        for sample in family.samples
        if sample.labels.get("stream") == "flights" and set(sample.labels) == {"stream"}
    }
