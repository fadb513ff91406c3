#include "parent/notes.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/secret.h"
#include "parent/credentials.h"
#include "parent/hosts.h"
#include "parent/parent.h"
#include "parent/peer.h"
#include "parent/roles.h"
#include "parent/vault_key.h"

static struct parent_message *note_of(enum parent_verb verb)
{
    struct parent_message *m = mem_alloc(sizeof *m);
    m->verb = verb;
    return m;
}

static err send_note(struct peer *to, struct parent_message *take_m, const int *fds, size_t n)
{
    err e = peer_send(to, take_m, fds, n);
    secret_wipe(take_m, sizeof *take_m);
    mem_free(take_m);
    return e;
}

err note_config(struct peer *to, const struct parent_options *o, const char *short_dir,
                bool control)
{
    struct parent_message *m = note_of(PARENT_NOTE_CONFIG);
    struct parent_config *c = &m->config;
    *c = o->config;
    if (control) {
        snprintf(c->data_dir, sizeof c->data_dir, "%s",
                 o->separate ? ROLE_ROOT "/data" : short_dir);
        if (o->objects_dir == NULL)
            snprintf(c->objects_dir, sizeof c->objects_dir, "%.240s/objects", c->data_dir);
        else
            snprintf(c->objects_dir, sizeof c->objects_dir, "%s",
                     o->separate ? ROLE_ROOT "/objects" : o->objects_dir);
    } else {
        secret_wipe(c->control_key, sizeof c->control_key);
    }
    snprintf(c->runtime_dir, sizeof c->runtime_dir, "%s",
             o->separate ? ROLE_ROOT "/runtime" : o->runtime_dir);
    c->zones_separated = o->separate;
    memcpy(c->seal_public_key, vault_key_public(o->key), sizeof c->seal_public_key);
    return send_note(to, m, NULL, 0);
}

err note_listen(struct peer *to, const struct parent_options *o)
{
    struct parent_message *m = note_of(PARENT_NOTE_LISTEN);
    bool tls = o->tls_cert_fd >= 0;
    const int fds[] = {o->listen_fd, o->tls_cert_fd, o->tls_key_fd};
    snprintf(m->text, sizeof m->text, "%s", tls ? "TLS" : "");
    for (size_t i = 1; tls && i < 3; i++) {
        if (lseek(fds[i], 0, SEEK_SET) < 0) { /* a control before this one read them to the end */
            mem_free(m);
            return fail_errno("read the TLS files again");
        }
    }
    return send_note(to, m, fds, tls ? 3 : 1);
}

err note_credential(struct peer *to, const struct environment_key *key)
{
    struct parent_message *m = note_of(PARENT_NOTE_CREDENTIAL);
    snprintf(m->text, sizeof m->text, "%s", key->provider);
    m->credential.length = key->length;
    memcpy(m->credential.data, key->sealed, key->length);
    return send_note(to, m, NULL, 0);
}

err note_gateway(struct peer *to, const struct host *host, bool known)
{
    struct parent_message *m = note_of(PARENT_NOTE_GATEWAY);
    m->host.id = host->id;
    memcpy(m->host.tenant, host->tenant, sizeof m->host.tenant);
    return send_note(to, m, &host->gateway, known ? 0 : 1);
}

err note_host_exit(struct peer *to, const struct host *host, int status)
{
    struct parent_message *m = note_of(PARENT_NOTE_HOST_EXIT);
    m->host.id = host->id;
    m->host.exit_status = status;
    memcpy(m->host.tenant, host->tenant, sizeof m->host.tenant);
    return send_note(to, m, NULL, 0);
}

err note_link(struct peer *to, int fd)
{
    return send_note(to, note_of(PARENT_NOTE_LINK), &fd, 1);
}

err note_stop(struct peer *to)
{
    return send_note(to, note_of(PARENT_NOTE_STOP), NULL, 0);
}
