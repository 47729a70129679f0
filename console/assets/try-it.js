// The page "Try it here": registers this browser as a device and shows what it receives.

import { PushDevice } from "./push.mjs";

const form = document.getElementById("try-it");
const sending = document.getElementById("try-send");
const state = document.getElementById("connection");
const list = document.getElementById("messages");
let device;
let client;

const say = (text, mood = "") => {
  state.textContent = text;
  state.className = `note ${mood}`;
};

const post = async (path, fields) => {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/x-www-form-urlencoded", "hx-request": "true" },
    body: new URLSearchParams(fields),
  });
  if (!response.ok) {
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const why = page.querySelector("[role=alert]")?.textContent;
    throw new Error(why ?? `The service answered ${response.status}.`);
  }
  return response;
};

// One secret for each browser, from which its client id follows: a page that is opened again is the same device.
const browserSecret = () => {
  const known = localStorage.getItem("push-browser");
  if (known) return known;
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const made = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  localStorage.setItem("push-browser", made);
  return made;
};

const register = async () => {
  const response = await post("/try-it/register", { app: form.app.value, browser: browserSecret() });
  device = await response.json();
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  device.mqtt.websocket_url ??= `${scheme}://${location.host}/mqtt`;
  return device;
};

const show = (message) => {
  const item = document.createElement("li");
  const title = document.createElement("strong");
  title.textContent = message.notification?.title ?? (message.data ? "Data" : "A push");
  const text = document.createElement("div");
  text.textContent = message.notification?.desc ?? JSON.stringify(message.data ?? {});
  const id = document.createElement("div");
  id.className = "hint id";
  id.textContent = `${message.message_id} · ${new Date().toLocaleTimeString()}`;
  item.append(title, text, id);
  list.prepend(item);
  while (list.children.length > 100) list.lastChild.remove();
};

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  say("Connecting…");
  client?.stop();
  try {
    await register();
  } catch (error) {
    say(error.message, "bad");
    return;
  }
  client = new PushDevice({
    login: device.mqtt,
    renew: async () => (await register()).mqtt,
    onMessage: show,
    onState: (now, error) => {
      const up = now === "connected";
      const away = error ? `The connection is away: ${error.message}` : `The connection is ${now}.`;
      say(up ? `Connected as ${device.client_id}.` : away, up ? "good" : "warn");
      const send = sending.querySelector("button");
      if (up && send.disabled) requestAnimationFrame(() => send.focus());
      send.disabled = !up;
    },
  });
  client.start();
});

sending.addEventListener("submit", async (event) => {
  event.preventDefault();
  const path = `/devices/${encodeURIComponent(form.app.value)}/${encodeURIComponent(device.client_id)}/test`;
  try {
    await post(path, { title: sending.title.value, desc: sending.desc.value });
  } catch (error) {
    say(error.message, "bad");
  }
});
