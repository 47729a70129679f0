// npm's mqtt, over WebSocket, in both versions of MQTT.
import mqtt from "mqtt";
import { eventually, push, register } from "./service.mjs";

for (const protocolVersion of [4, 5]) {
  const name = `npm-${protocolVersion}`;
  const { websocket_url, client_id, username, password, topic } = (await register(name)).mqtt;
  const client = mqtt.connect(websocket_url, { protocolVersion, clientId: client_id, username, password });
  const received = [];
  client.on("message", (_, payload) => received.push(JSON.parse(payload).data.page));
  client.on("error", (error) => { throw error; });
  await client.subscribeAsync(topic, { qos: 1 });
  // In frames with a length of 7 bits and of 16 bits.
  for (const page of ["7", "x".repeat(100), "y".repeat(2000)]) {
    await push(name, page);
    await eventually("the push arrives", () => received.includes(page));
  }
  await client.endAsync();
}
