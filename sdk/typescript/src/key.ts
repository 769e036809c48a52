/** Unique, not secret. Node 18 and pages without TLS lack crypto.randomUUID. */
export function newKey(): string {
  const random = () => Math.random().toString(36).slice(2);
  return `${Date.now().toString(36)}-${random()}${random()}`;
}
