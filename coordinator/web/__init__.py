"""The live page and the HTTP interface of one coordinator. Both only read.

    http      the server: /livez, /readyz, /metrics, /status, TLS and tokens
    page      routes of the page and of /api/v1, and the OpenAPI document that is made from `model`
    model     bodies of /api/v1
    board     the state of all streams: own ones as of now, those of other coordinators from the state store
    feed      newest cuts and dead letters, read from the ends of their topics
    updates   server-sent events: the whole state first, then what changes
    outages   when Kafka or Redis was last there

A browser may stay open for days beside a busy service. So each reader has a bounded queue, and one that is
too slow gets the whole state again; an absent topic or store leaves its part of the page empty, with the
reason. A page that fails never fails a commit: nothing in `stream` waits for anything here.

The page is served with a strict content policy, and loads nothing from elsewhere. With tokens configured,
every address asks for one, except the probes of an orchestrator."""
