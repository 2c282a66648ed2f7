# Prometheus and Alertmanager of Debian in the place of their own images, which no test can fetch.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager \
    && install --directory --owner=nobody /prometheus /alertmanager && rm -rf /var/lib/apt/lists/*
USER 65534
