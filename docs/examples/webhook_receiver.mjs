// Receives messages of the push service: WEBHOOK_SECRET=whsec_… node webhook_receiver.mjs PORT
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");

function isGenuine(headers, body) {
  const { "webhook-id": id, "webhook-timestamp": sentAt, "webhook-signature": given = "" } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(sentAt)) <= 300)) return false;
  const right = createHmac("sha256", key).update(`${id}.${sentAt}.`).update(body).digest();
  return given.split(" ").some((one) => {
    const signature = Buffer.from(one.replace(/^v1,/, ""), "base64");
    return one.startsWith("v1,") && signature.length === 32 && timingSafeEqual(signature, right);
  });
}

// Replace this with your own channel. Here a token is a telephone number.
function deliver(token, payload) {
  if (!token.startsWith("+")) return { status: "gone" };
  console.log("to", token, payload.notification ?? payload.data);
  return { status: "sent" };
}

createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  if (request.method !== "POST" || !isGenuine(request.headers, body)) {
    return response.writeHead(401).end();
  }
  const { payload, devices } = JSON.parse(body);
  const outcomes = devices.map((d) => [d.client_id, deliver(d.token, payload)]);
  response.end(JSON.stringify({ devices: Object.fromEntries(outcomes) }));
}).listen(Number(process.argv[2]), "127.0.0.1");
