# A broker, or any other command of `mesh`. How to run it: docs/deploy/containers.md.
#
#   docker build --tag mangrove .
#   docker run --rm mangrove --version

FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE pytest_mangrove.py ./
COPY protocols protocols
COPY mesh mesh
COPY simulations simulations
RUN python -m venv /opt/mangrove \
    && /opt/mangrove/bin/pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[keys]'

FROM python:3.12-slim
RUN groupadd --gid 10001 mangrove \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/mangrove mangrove \
    && install --directory --owner mangrove --group mangrove --mode 0700 /var/lib/mangrove
COPY --from=build /opt/mangrove /opt/mangrove
# Every option of the configuration has a variable. Port 9770 tells strangers about health only.
ENV PATH=/opt/mangrove/bin:$PATH \
    PYTHONFAULTHANDLER=1 \
    MANGROVE_STATE_DIR=/var/lib/mangrove \
    MANGROVE_LISTEN=tcp://:7770 \
    MANGROVE_HTTP=0.0.0.0:9770
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /var/lib/mangrove
VOLUME /var/lib/mangrove
EXPOSE 7770 9770
# This broker's event loop answers. `mesh check` judges the whole mesh, and another broker's death is no reason to
# replace this one.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9770/livez', timeout=4)"]
ENTRYPOINT ["mesh"]
CMD ["broker"]
