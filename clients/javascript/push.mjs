/**
 * A device of the Push Message Service in a browser or in Node 22 and later: MQTT 5 over WebSocket.
 *
 *     const device = new PushDevice({
 *       login: answer.result.mqtt,               // of PUT /v1/device/{AppID}/{ClientID}
 *       renew: () => fetch("/my/backend/login"), // returns a new one, see below
 *       onMessage: (message) => console.log(message),
 *     });
 *     device.start();
 *
 * docs/reference/device-protocol.md describes the protocol.
 */

const CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9;
const PINGREQ = 12, PINGRESP = 13, DISCONNECT = 14;
const SESSION_EXPIRY = 0x11, SERVER_KEEP_ALIVE = 0x13;
const BAD_LOGIN = 0x86, NOT_AUTHORIZED = 0x87, TAKEN_OVER = 0x8e;

/** The bytes of each property's value in CONNACK. Text has its length before it, and pairs are two texts. */
const PROPERTY_SIZES = {
  0x11: 4, 0x12: "text", 0x13: 2, 0x15: "text", 0x16: "text", 0x1a: "text", 0x1c: "text", 0x1f: "text",
  0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x26: "pair", 0x27: 4, 0x28: 1, 0x29: 1, 0x2a: 1,
};

/** The most bytes of a packet. The broker sends no packet that is larger than a push. */
const MAX_PACKET = 1 << 20;

/** The time after which a connection counts as good, and the next pause is short again, in milliseconds. */
const STABLE = 10_000;

/** The time that the broker has for an answer, in milliseconds. */
const ANSWER = 10_000;

/** The longest time of a timer, in milliseconds. */
const LONGEST = 2 ** 31 - 1;

const encoder = new TextEncoder(), decoder = new TextDecoder();

const u16 = (n) => [n >> 8, n & 255];
const u32 = (n) => [n >>> 24, (n >> 16) & 255, (n >> 8) & 255, n & 255];

function text(value) {
  const bytes = encoder.encode(value);
  return [...u16(bytes.length), ...bytes];
}

function packet(type, flags, body) {
  const length = [];
  let rest = body.length;
  do {
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest > 0);
  return Uint8Array.from([(type << 4) | flags, ...length, ...body]);
}

/** Reads a variable byte integer. Returns its value and where it ends, or undefined if bytes are missing. */
function varint(bytes, from) {
  let value = 0;
  for (let i = 0; i < 4; i++) {
    if (from + i >= bytes.length) return undefined;
    value |= (bytes[from + i] & 127) << (7 * i);
    if (bytes[from + i] < 128) return [value, from + i + 1];
  }
  throw new Error("a length of MQTT is malformed");
}

const read16 = (bytes, at) => (bytes[at] << 8) | bytes[at + 1];

/** Returns the value of a two-byte property, if it is there. */
function property(body, from, wanted) {
  let [length, at] = varint(body, from) ?? [0, from];
  for (const end = at + length; at < end; ) {
    const id = body[at++], size = PROPERTY_SIZES[id];
    if (size === undefined) return undefined;
    if (id === wanted) return read16(body, at);
    if (typeof size === "number") at += size;
    else for (let n = size === "pair" ? 2 : 1; n > 0; n--) at += 2 + read16(body, at);
  }
  return undefined;
}

/** Remembers the last ids. Any object with `has` and `add` may take its place, to remember them for longer. */
class LastIds {
  #ids = new Set();

  has(id) {
    return this.#ids.has(id);
  }

  add(id) {
    this.#ids.add(id);
    if (this.#ids.size > 1000) this.#ids.delete(this.#ids.values().next().value);
  }
}

/** Refused by the broker, or not understood. `code` is the reason code of MQTT, if there is one. */
export class PushError extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

/**
 * One device. It connects until it is stopped, and calls:
 * - `onMessage(message)` for each push, the parsed JSON. The push is acknowledged when the call, or the
 *   promise that it returns, is done. If that fails, the push comes again after a pause.
 * - `renew()` before the login expires and when the broker refuses it. It returns, or promises, the answer
 *   of a new registration, or `result.mqtt` of it.
 * - `onState(state, error)`: `connected`, `waiting` (until the next try), `taken over` (another connection
 *   has this client id; this one ends) or `stopped`.
 *
 * Options, times in milliseconds: `order` holds pushes for so long to bring them into the order of
 * `sequence` (0: as they come); `keepAlive` (60000); `sessionExpiry` (7 days); `minPause` (1000) and
 * `maxPause` (60000) between tries; `renewBefore` (a tenth of the login's time); `seen`, which remembers ids.
 */
export class PushDevice {
  #options;
  #login;
  #socket;
  #buffer = new Uint8Array();
  #seen;
  #held = [];
  #handling = Promise.resolve();
  #renewing;
  #tries = 0;
  #running = false;
  #timers = {};

  constructor(options) {
    this.#options = {
      renew: async () => { throw new PushError("the login has expired"); },
      onState: () => {}, order: 0, keepAlive: 60_000, sessionExpiry: 7 * 24 * 3600_000,
      minPause: 1_000, maxPause: 60_000, WebSocket: globalThis.WebSocket, ...options,
    };
    this.#seen = options.seen ?? new LastIds();
    this.#use(options.login);
  }

  /** Connects, and stays connected until `stop`. */
  start() {
    if (this.#running) return;
    this.#running = true;
    this.#connect();
  }

  /** Disconnects. The broker keeps the session, and pushes wait there for the next start. */
  stop(state = "stopped") {
    if (!this.#running) return;
    this.#running = false;
    this.#send(packet(DISCONNECT, 0, []));
    this.#drop();
    this.#options.onState(state);
  }

  #use(answer) {
    const login = answer?.result?.mqtt ?? answer?.mqtt ?? answer;
    const url = login?.websocket_url ?? login?.url;
    if (!/^wss?:/.test(url ?? "")) throw new PushError("the login has no URL of a WebSocket");
    const left = login.expires_at - Date.now();
    const before = this.#options.renewBefore ?? left / 10;
    this.#login = { ...login, url, renewAt: login.expires_at - before };
  }

  async #connect() {
    try {
      if (Date.now() >= this.#login.renewAt) await this.#renew();
    } catch (error) {
      // The login may still be good.
      if (Date.now() >= this.#login.expires_at) return this.#fail(error);
    }
    if (!this.#running) return;
    const socket = new this.#options.WebSocket(this.#login.url, "mqtt");
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    const ifCurrent = (act) => (event) => {
      if (this.#socket !== socket) return;
      try {
        act(event);
      } catch (error) {
        this.#fail(error);
      }
    };
    socket.onopen = ifCurrent(() => this.#logIn());
    socket.onmessage = ifCurrent((event) => this.#receive(new Uint8Array(event.data)));
    socket.onclose = ifCurrent((event) => {
      this.#fail(new PushError(`the connection closed (${event.code})`));
    });
    socket.onerror = () => {};
    this.#after("answer", ANSWER, () => this.#fail(new PushError("the broker does not answer")));
  }

  #logIn() {
    const { client_id, username, password } = this.#login;
    const { keepAlive, sessionExpiry } = this.#options;
    const expiry = [SESSION_EXPIRY, ...u32(Math.round(sessionExpiry / 1000))];
    // User name and password; no clean start, so the session goes on.
    const head = [...text("MQTT"), 5, 0xc0, ...u16(Math.round(keepAlive / 1000)), expiry.length, ...expiry];
    this.#send(packet(CONNECT, 0, [...head, ...text(client_id), ...text(username), ...text(password)]));
  }

  #receive(bytes) {
    const joined = new Uint8Array(this.#buffer.length + bytes.length);
    joined.set(this.#buffer);
    joined.set(bytes, this.#buffer.length);
    let at = 0;
    for (;;) {
      const length = joined.length > at ? varint(joined, at + 1) : undefined;
      if (length?.[0] > MAX_PACKET) throw new PushError("a packet is too large");
      if (!length || joined.length < length[1] + length[0]) break;
      const end = length[1] + length[0], socket = this.#socket;
      this.#handle(joined[at] >> 4, joined[at] & 15, joined.subarray(length[1], end));
      if (this.#socket !== socket) return;
      at = end;
    }
    this.#buffer = joined.slice(at);
  }

  #handle(type, flags, body) {
    if (type === CONNACK) {
      if (body[1] !== 0) return this.#refused(body[1]);
      this.#send(packet(SUBSCRIBE, 2, [...u16(1), 0, ...text(this.#login.topic), 1]));
      this.#ping((property(body, 2, SERVER_KEEP_ALIVE) ?? this.#options.keepAlive / 1000) * 1000);
    } else if (type === SUBACK) {
      if (body.at(-1) >= 0x80) return this.#refused(body.at(-1));
      clearTimeout(this.#timers.answer);
      this.#after("stable", STABLE, () => (this.#tries = 0));
      this.#after("renew", this.#login.renewAt - Date.now(), () => this.#replace());
      this.#options.onState("connected");
    } else if (type === PUBLISH) {
      const named = 2 + read16(body, 0), qos = (flags >> 1) & 3;
      const [length, at] = varint(body, named + (qos > 0 ? 2 : 0));
      const payload = body.subarray(at + length);
      this.#hold(decoder.decode(payload), qos > 0 ? read16(body, named) : undefined);
    } else if (type === PINGRESP) {
      clearTimeout(this.#timers.pong);
    } else if (type === DISCONNECT) {
      if (body[0] === TAKEN_OVER) return this.stop("taken over");
      this.#refused(body[0] ?? 0);
    }
  }

  /** Gives a push to the app, in its turn, and acknowledges it afterwards. */
  #hold(payload, id) {
    let message;
    try {
      message = JSON.parse(payload);
    } catch {
      // It would come again and again.
      return this.#acknowledge(id);
    }
    this.#held.push({ message, id, socket: this.#socket });
    if (!this.#options.order) return this.#release();
    this.#timers.order ??= setTimeout(() => this.#release(), this.#options.order);
  }

  #release() {
    this.#timers.order = undefined;
    const held = this.#held.splice(0);
    if (this.#options.order) held.sort((a, b) => (a.message.sequence ?? 0) - (b.message.sequence ?? 0));
    for (const push of held) {
      this.#handling = this.#handling.then(() => this.#give(push));
    }
  }

  async #give({ message, id, socket }) {
    // What an earlier connection has brought comes again.
    if (socket !== this.#socket) return;
    try {
      if (!this.#seen.has(message.message_id)) {
        await this.#options.onMessage(message);
        this.#seen.add(message.message_id);
      }
      if (socket === this.#socket) this.#acknowledge(id);
    } catch (error) {
      if (socket === this.#socket) this.#fail(error);
    }
  }

  #acknowledge(id) {
    if (id !== undefined) this.#send(packet(PUBACK, 0, u16(id)));
  }

  #ping(interval) {
    this.#after("ping", interval, () => {
      this.#send(packet(PINGREQ, 0, []));
      this.#after("pong", ANSWER, () => this.#fail(new PushError("the broker does not answer")));
      this.#ping(interval);
    });
  }

  /** Gets a new login while the old one is good, and connects with it. */
  async #replace() {
    const socket = this.#socket;
    // The timer may have been too short for the whole time.
    const left = this.#login.renewAt - Date.now();
    if (left > 0) return this.#after("renew", left, () => this.#replace());
    try {
      await this.#renew();
    } catch {
      if (this.#socket !== socket) return;
      return this.#after("renew", this.#pause(), () => this.#replace());
    }
    if (!this.#running || this.#socket !== socket) return;
    this.#send(packet(DISCONNECT, 0, []));
    this.#drop();
    this.#connect();
  }

  /** Asks the app for a login, once for all who wait for it. */
  #renew() {
    this.#renewing ??= (async () => {
      try {
        this.#use(await this.#options.renew());
      } finally {
        this.#renewing = undefined;
      }
    })();
    return this.#renewing;
  }

  #refused(code) {
    if (code === BAD_LOGIN || code === NOT_AUTHORIZED) this.#login.renewAt = 0;
    this.#fail(new PushError(`refused by the broker (0x${code.toString(16)})`, code));
  }

  /** Connects again, after a random pause that grows with the number of tries. */
  #fail(error) {
    this.#drop();
    if (!this.#running) return;
    this.#options.onState("waiting", error);
    this.#after("connect", this.#pause(), () => this.#connect());
  }

  #pause() {
    const { minPause, maxPause } = this.#options;
    const longest = Math.min(maxPause, minPause * 2 ** Math.min(this.#tries++, 30));
    return longest / 2 + (Math.random() * longest) / 2;
  }

  #after(name, time, act) {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = setTimeout(act, Math.min(Math.max(time, 0), LONGEST));
  }

  #send(bytes) {
    if (this.#socket?.readyState === 1) this.#socket.send(bytes);
  }

  /** Closes the connection. What it brought and was not given to the app comes again. */
  #drop() {
    for (const name of Object.keys(this.#timers)) clearTimeout(this.#timers[name]);
    this.#timers = {};
    this.#held = [];
    this.#buffer = new Uint8Array();
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close();
  }
}
