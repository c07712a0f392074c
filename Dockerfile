# syntax=docker/dockerfile:1

# The coordinator: no Java, no Spark, no test tools. Each package has wheels for amd64 and arm64.
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    UV_CACHE_DIR=/var/cache/uv \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1

WORKDIR /src
COPY pyproject.toml requirements.lock ./

# The lock file has uv too, with its hashes.
RUN awk '/^uv==/ { found = 1 } found { print } found && !/\\$/ { exit }' requirements.lock > uv.txt \
    && pip install --require-hashes --requirement uv.txt && uv venv /opt/sluicegate

# uv checks the hashes of a constraints file, so that the one lock file also covers a part of what it names.
RUN --mount=type=cache,target=/var/cache/uv \
    uv pip install --python /opt/sluicegate --no-build --constraint requirements.lock \
        --requirements pyproject.toml --extra delta --extra iceberg --extra paimon --extra object-stores --extra hdfs \
        --extra glue --extra msk --extra postgres --extra openlineage --extra otel

# setuptools, which builds the project, comes from the same lock file.
COPY . .
RUN --mount=type=cache,target=/var/cache/uv \
    uv pip install --python /opt/sluicegate --no-deps --build-constraint requirements.lock .


FROM python:3.12-slim

LABEL org.opencontainers.image.title="sluicegate" \
      org.opencontainers.image.description="Event-driven, exactly-once commit coordinator for data-lake tables" \
      org.opencontainers.image.licenses="Apache-2.0"

# The warehouse exists in the image so that a fresh volume there belongs to the user.
RUN groupadd --gid 10001 sluicegate \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sluicegate \
    && install --directory --owner 10001 --group 10001 /var/lib/sluicegate/warehouse

COPY --from=build /opt/sluicegate /opt/sluicegate

ENV PATH=/opt/sluicegate/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

USER 10001:10001
WORKDIR /var/lib/sluicegate
EXPOSE 8080
STOPSIGNAL SIGTERM

ENTRYPOINT ["sluicegate"]
CMD ["run", "--config", "/etc/sluicegate/sluicegate.toml"]
