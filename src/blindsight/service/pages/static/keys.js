// An owner's key stays in this browser: made at enrolment, kept in a file, used to open pictures and to allow proposals.
// Sealed boxes are HPKE in base mode (RFC 9180: X25519, HKDF-SHA256, AES-256-GCM), as blindsight.crypto.sealedbox has them.

const bytes = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const hex = (raw) => Array.from(new Uint8Array(raw), (one) => one.toString(16).padStart(2, "0")).join("");
const text = (words) => new TextEncoder().encode(words);
const joined = (...parts) => new Uint8Array(parts.flatMap((part) => [...part]));
const CURVE = { name: "X25519" };
const PKCS8 = bytes("302e020100300506032b656e04220420"); // what stands before the 32 bytes of a private key
const KEM = joined(text("KEM"), [0, 0x20]);
const SUITE = joined(text("HPKE"), [0, 0x20, 0, 1, 0, 2]);
const place = (publicKey) => `blindsight key ${publicKey}`;

async function hmac(key, content) {
  const made = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", made, content));
}
const extract = (suite, salt, label, material) =>
  hmac(salt.length ? salt : new Uint8Array(32), joined(text("HPKE-v1"), suite, text(label), material));
const expand = async (suite, secret, label, info, length) =>
  (await hmac(secret, joined([0, length], text("HPKE-v1"), suite, text(label), info, [1]))).slice(0, length);

async function keyOf(secret) {
  const key = await crypto.subtle.importKey("pkcs8", joined(PKCS8, bytes(secret)), CURVE, true, ["deriveBits"]);
  const { x } = await crypto.subtle.exportKey("jwk", key);
  return { key, publicKey: hex(Uint8Array.from(atob(x.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt())) };
}

async function makeKey() {
  const { privateKey } = await crypto.subtle.generateKey(CURVE, true, ["deriveBits"]);
  const secret = hex((await crypto.subtle.exportKey("pkcs8", privateKey)).slice(-32));
  return { secret, ...(await keyOf(secret)) };
}

export async function openBox({ key, publicKey }, box, context) {
  const [once, sealed] = [box.slice(0, 32), box.slice(32)];
  const theirs = await crypto.subtle.importKey("raw", once, CURVE, true, []);
  const shared = new Uint8Array(await crypto.subtle.deriveBits({ ...CURVE, public: theirs }, key, 256));
  const agreed = await extract(KEM, [], "eae_prk", shared);
  const common = await expand(KEM, agreed, "shared_secret", joined(once, bytes(publicKey)), 32);
  const [none, info] = [await extract(SUITE, [], "psk_id_hash", []), await extract(SUITE, [], "info_hash", text(context))];
  const schedule = joined([0], none, info);
  const secret = await extract(SUITE, common, "secret", []);
  const cipher = await expand(SUITE, secret, "key", schedule, 32);
  const iv = await expand(SUITE, secret, "base_nonce", schedule, 12);
  const aes = await crypto.subtle.importKey("raw", cipher, "AES-GCM", false, ["decrypt"]);
  return new Uint8Array(await crypto.subtle.decrypt({ name: "AES-GCM", iv }, aes, sealed));
}

const keep = ({ secret, publicKey }) => localStorage.setItem(place(publicKey), secret);

async function ownKey() {
  const wanted = document.querySelector("[data-owner-key]")?.dataset.ownerKey;
  const secret = wanted && localStorage.getItem(place(wanted));
  return secret ? { secret, ...(await keyOf(secret)) } : null;
}

function save(identity) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(identity, null, 1)], { type: "application/json" }));
  link.download = `${identity.name}.identity`;
  link.click();
}

async function enrol(form) {
  const made = await makeKey();
  const code = form.elements.code.value;
  const sent = { code, public_key: made.publicKey };
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch("/v1/enrolment", { method: "POST", headers, body: JSON.stringify(sent) });
  const told = await answer.json();
  if (!answer.ok) return complain(form, told.error);
  const { name, role } = told.principal;
  if (role === "owner") keep(made);
  save({ url: location.origin, name, role, token: told.token, key: role === "owner" ? made.secret : null });
  const login = document.getElementById("login");
  login.elements.token.value = told.token;
  login.requestSubmit();
}

// Open the keys of all epochs that were sealed for this browser's key; an approval hands them over.
async function handOver(form, said) {
  const own = await ownKey();
  if (!own) return complain(form, "Your key is not in this browser. Bring its file first, at the top of your decisions.");
  const { epochs } = await (await fetch("/sift/keys")).json();
  const keys = {};
  for (const one of epochs.filter((epoch) => epoch.owner_key === own.publicKey))
    keys[one.id] = hex(await openBox(own, bytes(one.sealed), `blindsight/epoch.1 ${one.id}`));
  form.elements.keys.value = JSON.stringify(keys);
  form.elements.allowed.value = said;
  form.submit();
}

function complain(form, sentence) {
  const said = form.querySelector(".problem");
  said.textContent = sentence;
  said.hidden = false;
}

async function bringFile(input) {
  const form = input.form;
  try {
    const { key } = JSON.parse(await input.files[0].text());
    const found = { secret: key, ...(await keyOf(key)) };
    const wanted = document.querySelector("[data-owner-key]").dataset.ownerKey;
    if (found.publicKey !== wanted) return complain(form, "This is the key of another enrolment, or of somebody else.");
    keep(found);
    location.reload();
  } catch {
    complain(form, "This file holds no key.");
  }
}

export async function showPictures(root) {
  const views = [...root.querySelectorAll("canvas[data-frame]")];
  const own = views.length ? await ownKey() : null;
  for (const asked of document.querySelectorAll("[data-no-key]")) asked.hidden = Boolean(own);
  for (const view of own ? views : []) {
    try {
      const box = new Uint8Array(await (await fetch(`/sift/frames/${view.dataset.frame}`)).arrayBuffer());
      const png = await openBox(own, box, `blindsight/picture.1 ${view.dataset.frame}`);
      const picture = await createImageBitmap(new Blob([png], { type: "image/png" }));
      Object.assign(view, { width: picture.width, height: picture.height });
      view.getContext("2d").drawImage(picture, 0, 0);
      view.dataset.shown = "yes";
    } catch {
      view.title = "sealed for a key of before";
    }
  }
}

export function useKeys() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("[data-enrol]")) event.preventDefault(), enrol(form);
    else if (form.matches("[data-keys]") && event.submitter?.value === "allow")
      event.preventDefault(), handOver(form, "allow");
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-key-file]")) bringFile(event.target);
  });
  showPictures(document);
}
