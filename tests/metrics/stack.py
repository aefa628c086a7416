"""Prometheus and Alertmanager that scrape every second, and a webhook that notes what it gets."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.metrics import programs
from tests.metrics.scraping import wait_for
from tests.servers.postgres import free_port


class Webhook(ThreadingHTTPServer):
    """Notes the alerts that Alertmanager sends."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Notes)
        self.alerts: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def names(self) -> set[str]:
        """Return the names of all alerts that have fired."""
        return {alert["labels"]["alertname"] for alert in self.alerts if alert["status"] == "firing"}


class _Notes(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.alerts += json.loads(body)["alerts"]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Stack:
    """Prometheus with our rules, Alertmanager, and a webhook; all of them end with the block."""

    def __init__(self, home: Path, target: int, rules: str) -> None:
        self.webhook = Webhook()
        self._home, self._ports = home, (free_port(), free_port())
        self._processes: list[subprocess.Popen[bytes]] = []
        home.mkdir(exist_ok=True)
        (home / "rules.yaml").write_text(rules)
        _, alerts = self._ports
        (home / "prometheus.yaml").write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            "rule_files: [rules.yaml]\n"
            f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alerts}']}}]}}]}}\n"
            "scrape_configs:\n- job_name: ninelives\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
        )
        hook = self.webhook.server_address[1]
        (home / "alertmanager.yaml").write_text(
            "route: {receiver: hook, group_by: [alertname], group_wait: 0s, group_interval: 1s}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: 'http://127.0.0.1:{hook}/'}}]}}]\n"
        )

    def __enter__(self) -> Self:
        web, alerts = (f"127.0.0.1:{port}" for port in self._ports)
        self._start(
            "prometheus",
            [str(programs.prometheus()), f"--web.listen-address={web}", "--config.file=prometheus.yaml",
             "--storage.tsdb.path=data", "--storage.tsdb.retention.time=1d"],
        )  # fmt: skip
        self._start(
            "alertmanager",
            [*programs.alertmanager(), "--config.file=alertmanager.yaml", "--storage.path=alerts",
             f"--web.listen-address={alerts}", "--cluster.listen-address="],
        )  # fmt: skip
        wait_for(lambda: self._is_ready(web) and self._is_ready(alerts), f"no stack: {self._said()}")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.webhook.shutdown()
        self.webhook.server_close()

    def _start(self, name: str, words: list[str]) -> None:
        with (self._home / f"{name}.log").open("wb") as log:
            self._processes.append(subprocess.Popen(words, cwd=self._home, stdout=log, stderr=log))

    def _said(self) -> str:
        return "\n".join(log.read_text()[-500:] for log in self._home.glob("*.log"))

    def _is_ready(self, address: str) -> bool:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the series that an expression gives now."""
        asked = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self._ports[0]}/api/v1/query?{asked}", timeout=30
        ) as a:
            found: list[dict[str, Any]] = json.load(a)["data"]["result"]
        return found

    def number(self, expr: str) -> float:
        """Return the one number that an expression gives; 0 if it gives none."""
        found = self.query(expr)
        return float(found[0]["value"][1]) if found else 0.0

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire now."""
        return {one["metric"]["alertname"] for one in self.query('ALERTS{alertstate="firing"}')}
