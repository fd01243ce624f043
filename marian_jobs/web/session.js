// Whose jobs: the project from config.json, and a user's access token, which never leaves this tab but to the API.

const KEY = "marian-access-token";

/** Reads `{url, anonKey, realtime}`: the project's address, its public key, and false where it has no Realtime. */
export async function project() {
  const answer = await fetch("config.json", { cache: "no-store" });
  if (!answer.ok) throw new Error("This page has no config.json that names its project.");
  return await answer.json();
}

/** The token handed over in the address (`#access_token=…`, then taken out of it), or kept by this tab; else null. */
export function keptToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("access_token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEY);
}

export const keep = (token) => sessionStorage.setItem(KEY, token);
export const forget = () => sessionStorage.removeItem(KEY);

/** Why a text cannot be used as a user's token, or null when it can. Only the API verifies it. */
export function refusal(token) {
  const claims = claimsOf(token);
  if (!claims) return "This is not an access token.";
  if (claims.role !== "authenticated") return "This key is not a user's. Never paste a service key into a page.";
  if (hasExpired(token)) return "This access token has expired. Sign in again for a new one.";
  return null;
}

/** What to call the signed-in user. */
export function nameOf(token) {
  const claims = claimsOf(token);
  return claims.email || claims.sub;
}

function hasExpired(token) {
  return claimsOf(token).exp * 1000 <= Date.now();
}

function claimsOf(token) {
  try {
    const part = token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0))));
  } catch {
    return null;
  }
}
