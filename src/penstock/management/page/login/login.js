// The login page: sends user and password, then goes to where one was before the session ended.
// Where that was is in the fragment (/login#/queues), which a browser never sends.

const form = document.getElementById("login");
const trouble = document.getElementById("trouble");
const button = form.querySelector("button");

function say(text) {
  trouble.textContent = text;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  say("");
  button.disabled = true;
  try {
    const response = await fetch("/login", {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Penstock": "1" },
      body: JSON.stringify({ username: form.username.value, password: form.password.value }),
    });
    if (response.ok) {
      location.replace("/" + location.hash);
      return;
    }
    const answer = await response.json().catch(() => ({}));
    say(answer.reason || `The broker answered ${response.status}.`);
    form.password.select();
    form.password.focus();
  } catch {
    say("The broker does not answer. Is it running?");
  }
  button.disabled = false;
});
