// @ts-check
// A browser does not send the session cookie with a link from another site (SameSite=Strict). Reloading from this page
// sends it, so a signed-in user continues at once. The server asks for the reload with a class, and only once.

if (document.documentElement.classList.contains("again")) location.reload();
