#include "parent/vault_key.h"

#include <sodium.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/secret.h"

#define KEY_FILE_MAX 256

struct vault_key {
    struct vault_key *next; /* of a rotation that broke off, or NULL */
    unsigned char public[crypto_box_PUBLICKEYBYTES];
    unsigned char private[crypto_box_SECRETKEYBYTES];
};

static err start_sodium(void)
{
    return sodium_init() < 0 ? fail(E_INTERNAL, "libsodium does not start") : 0;
}

err vault_seal(const unsigned char public_key[32], json_t *contents, struct buf *out_sealed)
{
    TRY(start_sodium());
    AUTO_BUF plain = {0};
    json_write(contents, &plain);
    size_t n = size_add(plain.n, crypto_box_SEALBYTES);
    buf_reserve(out_sealed, n);
    unsigned char *at = (unsigned char *)out_sealed->p + out_sealed->n;
    int rc = crypto_box_seal(at, (unsigned char *)plain.p, plain.n, public_key);
    sodium_memzero(plain.p, plain.n);
    if (rc != 0)
        return fail(E_INTERNAL, "the vault's public key is not usable");
    out_sealed->n += n;
    out_sealed->p[out_sealed->n] = 0;
    return 0;
}

/* The file is one line of 64 hex digits: the private key. The public one follows from it. */
static err parse_key(const char *path, struct str text, struct vault_key *k)
{
    size_t n = 0;
    while (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    if (sodium_hex2bin(k->private, sizeof k->private, text.p, text.n, NULL, &n, NULL) != 0 ||
        n != sizeof k->private || text.n != 2 * sizeof k->private)
        return fail(E_INVALID,
                    "%s is not a vault key. Restore it from a backup: what is sealed in "
                    "this data directory cannot be opened without it",
                    path);
    crypto_scalarmult_base(k->public, k->private);
    return 0;
}

static err make_key(const char *path, struct vault_key *k)
{
    char text[2 * sizeof k->private + 2];
    crypto_box_keypair(k->public, k->private);
    sodium_bin2hex(text, sizeof text, k->private, sizeof k->private);
    text[sizeof text - 2] = '\n';
    text[sizeof text - 1] = 0;
    err e = fd_write_file_atomic(path, (struct str){text, sizeof text - 1}, 0600);
    sodium_memzero(text, sizeof text);
    return e;
}

static err refuse_shared_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return fail_errno("stat %s", path);
    if (st.st_mode & 077)
        return fail(E_INVALID, "others can read %s (mode %04o). Run: chmod 600 %s", path,
                    st.st_mode & 07777, path);
    return 0;
}

static err read_or_make(const char *path, struct vault_key *k)
{
    AUTO_BUF text = {0};
    err e = fd_read_file(path, KEY_FILE_MAX, &text);
    if (e == E_NOT_FOUND)
        return make_key(path, k);
    if (!e)
        e = refuse_shared_file(path);
    if (!e)
        e = parse_key(path, buf_str(&text), k);
    if (text.p)
        sodium_memzero(text.p, text.n);
    return e;
}

/* `vault rotate-key` leaves it when it broke off: some boxes may be sealed with it already. */
static err open_next(const char *path, struct vault_key *k)
{
    AUTO_BUF next = {0};
    buf_printf(&next, "%s.next", path);
    return access(next.p, F_OK) < 0 ? 0 : vault_key_open(next.p, &k->next);
}

err vault_key_open(const char *path, struct vault_key **out)
{
    TRY(start_sodium());
    struct vault_key *k = sodium_malloc(sizeof *k);
    if (k == NULL)
        abort();
    k->next = NULL;
    err e = read_or_make(path, k);
    if (!e)
        e = open_next(path, k);
    if (e) {
        sodium_free(k);
        return e;
    }
    *out = k;
    return 0;
}

void vault_key_free(struct vault_key *k)
{
    if (k)
        vault_key_free(k->next);
    sodium_free(k);
}

const unsigned char *vault_key_public(const struct vault_key *k)
{
    return k->public;
}

err vault_open(const struct vault_key *k, struct str sealed, struct secret **out_plain)
{
    if (sealed.n < crypto_box_SEALBYTES)
        return fail(E_INVALID, "this is not a sealed credential: only %zu bytes", sealed.n);
    size_t n = sealed.n - crypto_box_SEALBYTES;
    unsigned char *plain = mem_alloc(n + 1);
    int rc = crypto_box_seal_open(plain, (const unsigned char *)sealed.p, sealed.n, k->public,
                                  k->private);
    if (rc != 0 && k->next) {
        mem_free(plain);
        return vault_open(k->next, sealed, out_plain);
    }
    if (rc == 0)
        *out_plain = secret_new((struct str){(char *)plain, n});
    sodium_memzero(plain, n);
    mem_free(plain);
    return rc == 0 ? 0
                   : fail(E_INVALID, "the sealed credential was made for another vault key or "
                                     "was changed");
}
