// The client of clients/javascript, at a running service and at a broker that is played here.
import assert from "node:assert/strict";
import test from "node:test";
import { PushDevice } from "../clients/javascript/push.mjs";
import { eventually, push, register } from "./service.mjs";

/** A device that notes what happens to it. Its sockets can be cut. */
async function device(name, options = {}) {
  const sockets = [], received = [], states = [];
  class Socket extends WebSocket {
    constructor(...args) {
      super(...args);
      sockets.push(this);
    }
  }
  let renewals = 0;
  const push = new PushDevice({
    login: await register(name),
    renew: () => (renewals++, register(name)),
    onMessage: (message) => received.push(message.data.page),
    onState: (state, error) => states.push(error?.code ? `${state} ${error.code}` : state),
    minPause: 50, WebSocket: Socket, ...options,
  });
  push.start();
  const connected = (times) =>
    eventually(`connected ${times} times, not ${states}`, () => states.filter((s) => s === "connected").length >= times);
  const receives = (...pages) =>
    eventually(`${pages} arrive, not ${received}`, () => pages.every((page) => received.includes(page)));
  return { push, sockets, received, states, connected, receives, renewals: () => renewals };
}

test("pushes arrive once, and those that were missed arrive later", async () => {
  const one = await device("js-1");
  await one.connected(1);
  await push("js-1", "a");
  await one.receives("a");
  one.push.stop();
  await push("js-1", "b");
  one.push.start();
  await one.receives("b");
  one.sockets.at(-1).close();
  await one.connected(3);
  await push("js-1", "c");
  await one.receives("c");
  one.push.stop();
  assert.deepEqual(one.received, ["a", "b", "c"]);
  assert.equal(one.states.at(-1), "stopped");
});

test("a login is renewed before it expires, and the session goes on", async () => {
  // It lasts for a minute.
  const one = await device("js-2", { renewBefore: 59_000 });
  await one.connected(2);
  assert.ok(one.renewals() >= 1);
  await push("js-2", "a");
  await one.receives("a");
  one.push.stop();
  assert.ok(!one.states.includes("waiting"), "it was not refused");
});

test("a login that is refused is renewed", async () => {
  const login = { ...(await register("js-3")).mqtt, password: "wrong" };
  const one = await device("js-3", { login });
  await one.connected(1);
  one.push.stop();
  assert.deepEqual([one.states[0], one.renewals()], ["waiting 134", 1]);
});

test("a push whose handler fails comes again", async () => {
  let failures = 1;
  const one = await device("js-4", {
    onMessage(message) {
      if (failures-- > 0) throw new Error("full");
      one.received.push(message.data.page);
    },
  });
  await one.connected(1);
  await push("js-4", "a");
  await one.receives("a");
  one.push.stop();
});

test("a device whose place another connection takes ends", async () => {
  const one = await device("js-5");
  await one.connected(1);
  const two = await device("js-5");
  await two.connected(1);
  await eventually("the first ends", () => one.states.at(-1) === "taken over");
  two.push.stop();
});

/** A broker that sends these messages, one byte in each frame, and notes what is acknowledged. */
function played(messages) {
  const acknowledged = [];
  class Played {
    readyState = 0;
    constructor() {
      setTimeout(() => ((this.readyState = 1), this.onopen()), 0);
    }
    #say(...bytes) {
      for (const byte of bytes) setTimeout(() => this.onmessage({ data: Uint8Array.of(byte).buffer }), 0);
    }
    send(packet) {
      const type = packet[0] >> 4;
      // A property with a text, one with a number, and the Server Keep Alive.
      if (type === 1) this.#say(0x20, 14, 0, 0, 11, 0x12, 0, 1, 0x61, 0x24, 1, 0x13, 0, 30, 0x28, 0);
      if (type === 8) {
        this.#say(0x90, 4, packet[2], packet[3], 0, 1);
        messages.forEach((message, n) => {
          const payload = new TextEncoder().encode(JSON.stringify(message));
          const body = [0, 1, 0x74, 0, n + 1, 2, 0x01, 1, ...payload];
          this.#say(0x32, (body.length & 127) | 128, body.length >> 7, ...body);
        });
      }
      if (type === 4) acknowledged.push(packet[3]);
    }
    close() {}
  }
  return { Played, acknowledged };
}

const login = {
  url: "ws://played", client_id: "a:d", username: "a:d", password: "p", topic: "t", expires_at: Date.now() + 6e5,
};

async function give(messages, options) {
  const { Played, acknowledged } = played(messages), received = [];
  const one = new PushDevice({ login, onMessage: (m) => received.push(m.sequence), WebSocket: Played, ...options });
  one.start();
  await eventually("all are acknowledged", () => acknowledged.length === messages.length);
  one.stop();
  return { received, acknowledged };
}

test("what was received is acknowledged again and not given to the app", async () => {
  const messages = ["a", "b", "a"].map((message_id, sequence) => ({ message_id, sequence, text: "ä".repeat(100) }));
  assert.deepEqual(await give(messages), { received: [0, 1], acknowledged: [1, 2, 3] });
});

test("pushes that come together are put in order where that is wanted", async () => {
  const messages = [3, 1, 2].map((sequence) => ({ message_id: `${sequence}`, sequence, text: "x".repeat(150) }));
  assert.deepEqual((await give(messages, { order: 50 })).received, [1, 2, 3]);
  assert.deepEqual((await give(messages)).received, [3, 1, 2]);
});

test("a login without a WebSocket is refused", () => {
  assert.throws(() => new PushDevice({ login: { ...login, url: "mqtt://broker" } }), /no URL of a WebSocket/);
});
