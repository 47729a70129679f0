// Walks the pages of a console in a real browser: at two widths, light and dark, by keyboard, without
// JavaScript, with axe-core on each. Prints what is wrong, and ends with 1 if anything is.
//
// Usage: node pages.mjs LINK PICTURES
// LINK signs in. PICTURES is a folder that gets a picture of each page.

import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const require = createRequire(import.meta.url);
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const [link, pictures] = process.argv.slice(2);
const origin = new URL(link).origin;
mkdirSync(pictures, { recursive: true });

const wrong = [];
const check = (holds, text) => { if (!holds) wrong.push(text); };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage"],
});

// Everything that a page loads must come from its own origin.
const watched = async (options = {}) => {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  context.on("request", (request) => {
    const url = new URL(request.url());
    if (url.origin !== origin && !url.protocol.startsWith("data")) wrong.push(`a request left the origin: ${url}`);
  });
  context.on("console", (message) => {
    const isEnd = message.text().includes("ERR_INCOMPLETE_CHUNKED");
    if (message.type() === "error" && !isEnd) wrong.push(`console of ${message.page()?.url()}: ${message.text()}`);
  });
  return context;
};

// Sign in once, by the link; then by the cookie.
const first = await watched();
const page = await first.newPage();
let bytes = 0;
const measure = await first.newCDPSession(page);
await measure.send("Network.enable");
measure.on("Network.loadingFinished", (event) => { bytes += event.encodedDataLength; });
await measure.send("Emulation.setCPUThrottlingRate", { rate: 4 });
const begun = Date.now();
await page.goto(link);
await page.locator("h1").first().waitFor();
const firstContent = Date.now() - begun;
check(page.url() === `${origin}/`, `the link leads to ${page.url()}`);
await page.waitForTimeout(500);
await measure.send("Emulation.setCPUThrottlingRate", { rate: 1 });
console.log(`first load: ${bytes} bytes, first content after ${firstContent} ms with the processor slowed four times`);
check(bytes > 0 && bytes <= 60 * 1024, `the first load has ${bytes} bytes`);
const cookies = await first.cookies();
const session = cookies.find((cookie) => cookie.name.startsWith("push-console-"));
check(session?.httpOnly && session?.sameSite === "Strict", "the cookie of the session is not closed");

// The link is void now.
const other = await watched();
const stranger = await other.newPage();
await stranger.goto(link);
check((await stranger.locator("h1").textContent()) === "Sign in", "the link signs in twice");
await other.close();

// The demo's app, with its six devices, and one that is made here.
const app = "demo";
await page.goto(`${origin}/apps`);
await page.fill("#app_id", "news");
await page.click("button:has-text('Make the app')");
await page.locator("h1:has-text('New secret')").waitFor();
await page.goto(`${origin}/compose?app=${app}`);
await page.fill("#title", "Ready for pick-up");
await page.fill("#desc", "Your order waits at counter 3.");
await page.waitForFunction(() => document.querySelector("#preview pre")?.textContent.includes("Ready for pick-up"));
await page.click("button:has-text('Check and send')");
await page.locator("h1:has-text('Send this push?')").waitFor();
const word = page.locator("#confirm");
if (await word.count()) await word.fill(app);
await page.click("button:has-text('Send now')");
await page.waitForURL(/\/messages\//);
const message = new URL(page.url()).pathname;

const paths = [
  ["now", "/"], ["messages", `/messages?app=${app}`], ["message", message],
  ["compose", `/compose?app=${app}&title=Hello&desc=World`], ["devices", `/devices?app=${app}`],
  ["dead-letters", "/dead-letters"], ["apps", "/apps"], ["app", `/apps/${app}`], ["audit", "/audit"],
  ["try-it", `/try-it?app=${app}`],
];
const state = await first.storageState();
for (const width of [320, 1440]) {
  for (const colorScheme of ["light", "dark"]) {
    const context = await watched({ storageState: state, viewport: { width, height: 900 }, colorScheme });
    const page = await context.newPage();
    for (const [name, path] of paths) {
      const answer = await page.goto(origin + path);
      check(answer.status() === 200, `${path} is answered ${answer.status()}`);
      if (name === "compose") await page.locator("#preview strong:has-text('device')").first().waitFor();
      if (name === "app") await page.locator("h3:has-text('By country')").waitFor();
      await page.screenshot({ path: join(pictures, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      check(overflow <= 0, `${name} at ${width} px is ${overflow} px too wide`);
      const found = await runAxe(page);
      for (const violation of found) wrong.push(`axe, ${name} at ${width} px ${colorScheme}: ${violation}`);
    }
    await context.close();
  }
}

// The policy of the page forbids scripts from elsewhere, so axe comes in through the debugger.
async function runAxe(page) {
  const source = require("node:fs").readFileSync(axe, "utf8");
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: source });
  const result = await session.send("Runtime.evaluate", {
    expression: "axe.run().then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ')).join(', ')))",
    awaitPromise: true, returnByValue: true,
  });
  await session.detach();
  return result.result.value ?? [`axe did not run: ${JSON.stringify(result.exceptionDetails?.exception?.description)}`];
}

// By keyboard alone: the first Tab reaches the link past the navigation, and every page of the navigation can
// be reached and opened.
await page.goto(`${origin}/`);
await page.keyboard.press("Tab");
check((await page.evaluate(() => document.activeElement.textContent)) === "Skip to the page", "Tab does not begin at the skip link");
for (let tab = 0; tab < 20; tab += 1) {
  await page.keyboard.press("Tab");
  if ((await page.evaluate(() => document.activeElement.textContent)) === "Audit") break;
}
await page.keyboard.press("Enter");
await page.waitForURL(`${origin}/audit`);

// The browser as a device: it connects, and what is sent to it appears.
await page.goto(`${origin}/try-it?app=${app}`);
await page.click("button:has-text('Connect')");
await page.locator("#connection:has-text('Connected as')").waitFor({ timeout: 10_000 });
const asked = Date.now();
await page.click("#try-send button");
await page.locator("#messages li:has-text('Sent from the console')").waitFor({ timeout: 10_000 });
console.log(`a push reached the browser after ${Date.now() - asked} ms`);
await page.screenshot({ path: join(pictures, "try-it-received.png"), fullPage: true });

// Every page can be read without JavaScript.
const plain = await watched({ storageState: state, javaScriptEnabled: false });
const plainPage = await plain.newPage();
for (const [name, path] of paths) {
  await plainPage.goto(origin + path);
  check((await plainPage.locator("h1").count()) > 0, `${name} has no heading without JavaScript`);
}
await plainPage.goto(`${origin}/apps/${app}`);
await plainPage.click("a:has-text('Count them')");
check((await plainPage.locator("#devices ~ .grid .funnel").count()) === 2, "devices are not counted without JavaScript");

await browser.close();
for (const text of new Set(wrong)) console.log(`WRONG: ${text}`);
console.log(wrong.length ? `${wrong.length} wrong` : "all right");
process.exit(wrong.length ? 1 : 0);
