// One stream of events for all pages of a browser: browsers allow six connections to a server.
"use strict";
const ports = new Set();
let source = null;
let state = "connecting";

function send(message) {
  for (const port of ports) port.postMessage(message);
}

function open(last) {
  source = new EventSource("events?last=" + last);
  source.onopen = () => send({ type: "state", state: (state = "connected") });
  source.onerror = () => send({ type: "state", state: (state = "disconnected") });
  source.addEventListener("window", (event) => send({ type: "window", data: event.data }));
  source.addEventListener("skipped", (event) => send({ type: "skipped", data: event.data }));
}

onconnect = (event) => {
  const port = event.ports[0];
  ports.add(port);
  port.onmessage = (message) => {
    if (message.data.type === "close") ports.delete(port);
    if (message.data.type === "open") {
      if (source === null) open(message.data.last);
      else port.postMessage({ type: "state", state });
    }
  };
};
