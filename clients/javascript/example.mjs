// Registers a device, prints what it receives and ends after the first push.
//   PUSH_SERVER=http://127.0.0.1:8080 PUSH_SECRET=SECRET node example.mjs news display-1
import { PushDevice } from "./push.mjs";

const [app, name] = process.argv.slice(2);

// In a product, your backend does this: the secret never leaves it.
async function register() {
  const answer = await fetch(`${process.env.PUSH_SERVER}/v1/device/${app}/${name}`, {
    method: "PUT",
    headers: { Authorization: process.env.PUSH_SECRET, "Content-Type": "application/json" },
    body: JSON.stringify({ country: "IE" }),
  });
  if (!answer.ok) throw new Error(`registration: HTTP ${answer.status}`);
  return answer.json();
}

const device = new PushDevice({
  login: await register(),
  renew: register,
  onMessage(message) {
    console.log("received", JSON.stringify(message));
    // After the acknowledgement.
    setTimeout(() => device.stop(), 100);
  },
  onState: (state, error) => console.log(state, error?.message ?? ""),
});
device.start();
