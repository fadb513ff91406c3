/* The vault's key pair and sealed credentials. Control seals with the public key and cannot open;
   only the parent holds the private one (DATA/keys/vault.key, 0600). What is sealed binds the
   secret to its use: the broker trusts only what is inside the box. */
#ifndef PARENT_VAULT_KEY_H
#define PARENT_VAULT_KEY_H

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

/* Sealed JSON: {tenant, id, kind: "model_provider_key", provider?, origin?, hosts?, secret}.
   `provider` binds a model key to that catalogue provider's origin, `origin` to exactly one custom
   origin (R4a). */
err vault_seal(const unsigned char public_key[32], json_t *contents, struct buf *out_sealed);

/* The parent's half. One thread. */
struct vault_key;
struct secret;

/* Reads the key file, or makes it (0600) if there is none; and <path>.next, if a rotation broke off
   (cli/vault.c): new boxes are made for the first, what is sealed for either can be opened. *out is
   freed with vault_key_free. */
err vault_key_open(const char *path, struct vault_key **out);
void vault_key_free(struct vault_key *k);                         /* NULL-safe, wipes */
const unsigned char *vault_key_public(const struct vault_key *k); /* 32 bytes, borrowed */
/* The JSON text that was sealed. E_INVALID when the box was made for another key or was changed. */
err vault_open(const struct vault_key *k, struct str sealed, struct secret **out_plain);

#endif
