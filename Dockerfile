# The page on a prepared demo: docker build -t cenote . && docker run -p 127.0.0.1:7860:7860 cenote
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY cenote cenote
RUN pip install --no-cache-dir '.[web]'
RUN useradd --create-home cenote && mkdir /demo && chown cenote /demo
USER cenote
WORKDIR /demo
RUN cenote demo && cenote cache --unused 0
EXPOSE 7860
CMD ["cenote", "serve", "cenote-demo", "--host", "0.0.0.0", "--port", "7860", "--no-auth", "--allow-host", "localhost", "127.0.0.1"]
