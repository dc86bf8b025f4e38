// May: what the user's tags allow. What is not allowed is not offered; the broker refuses it in any case.

let tags = [];
let own = "";

export function is(user) {
  own = user.name;
  tags = user.tags;
}

export const name = () => own;
export const administer = () => tags.includes("administrator");
export const makePolicies = () => administer() || tags.includes("policymaker");
/** Connections, channels and nodes of everybody. */
export const monitor = () => administer() || tags.includes("monitoring");
/** Queues, exchanges and bindings; a user with `monitoring` alone looks and changes nothing. */
export const change = () => administer() || tags.includes("policymaker") || tags.includes("management");
export const shownTags = () => tags.join(", ") || "no tags";
