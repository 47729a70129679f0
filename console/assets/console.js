// What the pages do beyond htmx. Every page works without it.

// A table row is as easy to choose as its box.
document.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (!row || event.target.closest("a, button, input, summary, details, pre")) return;
  const box = row.querySelector("input[type=checkbox]");
  if (box) box.checked = !box.checked;
});

// Choosing an app on a list shows it at once.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.filter[method=get]");
  if (form && event.target.matches("select")) form.requestSubmit();
});

// A session that has ended leads to the sign-in page, not into a part of this one.
document.addEventListener("htmx:after:request", (event) => {
  if (event.detail?.ctx?.response?.status === 401) location.reload();
});

// Text for a machine is copied by its button, where the browser lets a page do that.
const offerCopies = () => {
  for (const button of document.querySelectorAll("[data-copy]")) button.hidden = !navigator.clipboard;
};
offerCopies();
document.addEventListener("htmx:after:swap", offerCopies);
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// The script of one page.
const page = document.querySelector("[data-script]");
if (page) import(page.dataset.script);
