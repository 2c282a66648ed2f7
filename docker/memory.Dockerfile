# The memory server alone, without compilers, caches or an installer.
ARG BASE_IMAGE=docker.io/library/python:3.13-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /build
RUN python3 -m venv tools && python3 -m venv --without-pip /opt/agent-memory
COPY requirements/memory.txt docker/sbom.txt ./
RUN tools/bin/pip install --no-cache-dir --require-hashes --no-deps --requirement sbom.txt \
    && tools/bin/pip --python /opt/agent-memory install --no-cache-dir --no-compile --require-hashes --no-deps \
        --requirement memory.txt
COPY pyproject.toml README.md LICENSE ./
COPY memory_svc memory_svc
RUN /opt/agent-memory/bin/python -c "import setuptools" \
    && tools/bin/pip --python /opt/agent-memory install --no-cache-dir --no-compile --no-deps --no-build-isolation . \
    && tools/bin/pip --python /opt/agent-memory uninstall --yes --quiet setuptools \
    && rm /opt/agent-memory/bin/embed-svc \
    && tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/agent-memory/sbom.cdx.json \
        /opt/agent-memory/bin/python \
    && /opt/agent-memory/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/agent-memory \
    && mkdir /image && mkdir --mode=0770 /image/data

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="memory-svc" \
      org.opencontainers.image.description="A memory for AI agents: hybrid recall over MCP and HTTP." \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/agent-memory /opt/agent-memory
# Any user may run it: one without a name belongs to group 0, which may write where the data are.
COPY --from=build --chown=10001:0 /image /
ENV PATH=/opt/agent-memory/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/data \
    MEMORY_DATA_DIR=/data \
    MEMORY_HOST=0.0.0.0
USER 10001:0
VOLUME /data
EXPOSE 8402
# Readiness is asked by `memory-svc probe`: no shell, no other program.
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["memory-svc", "probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["memory-svc"]
CMD ["serve"]
