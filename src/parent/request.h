/* The parent's vocabulary: all that roles may ask of it and all it tells them. One SOCK_SEQPACKET
   pair per role, on descriptor 3 of the role; one message is one struct parent_message with at most
   FD_PASS_MAX descriptors riding along. Fixed structs, no parsing: the parent checks every field it
   uses. Requests carry an id; the reply repeats it with status and reason. Requests are answered in
   any order. Both ends are the same binary, so layout never differs. */
#ifndef PARENT_REQUEST_H
#define PARENT_REQUEST_H

#include "base/err.h"
#include "base/fd.h"
#include "base/id.h"
#include "sandbox/packages.h"
#include "sandbox/provider.h"

#include <stdio.h>

#define PARENT_FD 3
#define PARENT_TEXT_MAX 256
#define PARENT_IMAGE_TIMEOUT_MS 1800000 /* 30 min, of PARENT_IMAGE_PREPARE, once it began */
#define PARENT_SEALED_MAX 8192          /* a sealed credential, and what comes out of it */

enum parent_verb {
    /* role → parent, no reply: I am ready. The parent starts the next role when it hears this. */
    PARENT_HELLO = 1,

    /* control → parent. Replies repeat the verb. */
    /* host.tenant, "" = none yet → reply host.id, fd 0 = stream socket */
    PARENT_START_HOST,
    /* host.id: KILL; the exit note follows */
    PARENT_STOP_HOST,
    /* host.id, host.tenant: a spare host (started with tenant "") gets its tenant; the broker is
       told by NOTE_GATEWAY first. Once per host: else E_CONFLICT */
    PARENT_BIND_HOST,
    PARENT_SANDBOX_CREATE,  /* sandbox.spec */
    PARENT_SANDBOX_START,   /* sandbox.spec → reply sandbox.socket: path control can connect to */
    PARENT_SANDBOX_STOP,    /* sandbox.spec, sandbox.grace_ms */
    PARENT_SANDBOX_DESTROY, /* sandbox.spec */
    PARENT_SANDBOX_STATS,   /* sandbox.spec → reply status_of */
    /* sandbox.spec (not there yet; image "": that of the other), sandbox.from: a session's or a
       snapshot's id → reply sandbox.live: it ran. With a snapshot's id in spec this makes a
       snapshot; DESTROY removes it */
    PARENT_SANDBOX_FORK,
    /* sandbox.spec.mounts[0] (any volume's id): could it be mounted? (sandbox_provider.mount_check)
     */
    PARENT_MOUNT_CHECK,
    /* sandbox.spec.tenant, .id: that of a volume → reply volume_bytes */
    PARENT_VOLUME_MEASURE,
    /* the same, no reply but its status. E_CONFLICT while a sandbox has it */
    PARENT_VOLUME_REMOVE,
    /* sandbox.spec.memory_mib: would it fit beside what runs? (R51) Reserves nothing */
    PARENT_SANDBOX_FITS,
    /* image.spec (id: build_…, image: what to start from), image.packages → reply image.spec.image:
       its name in the store. May take long (sandbox/bake.h). */
    PARENT_IMAGE_PREPARE,
    /* list.from = index → reply list.item.id of that one ("" past the end), list.total. Ask STATS,
       STOP or DESTROY with that id alone (R35) */
    PARENT_SANDBOX_LIST,

    /* broker → parent */
    /* credential.session, credential.data sealed → reply credential.data opened */
    PARENT_OPEN_CREDENTIAL,

    /* parent → role, no reply */
    /* to control and broker first: struct parent_config */
    PARENT_NOTE_CONFIG,
    /* to control: fd 0 = the listening socket; text = TLS: fd 1 = cert, fd 2 = key */
    PARENT_NOTE_LISTEN,
    /* to control and broker: fd 0 = their stream socket to each other (again when one is new) */
    PARENT_NOTE_LINK,
    /* maker → parent → broker: fd 0 = a socket that listens in a sandbox in which an image is made:
       serve it as a proxy to the hosts of config.package_hosts until fd 1 hangs up */
    PARENT_NOTE_EGRESS,
    /* to broker: host.id, host.tenant, fd 0 = listening gateway socket of that host; for a known id
       without fd: the tenant of its gateway is now host.tenant */
    PARENT_NOTE_GATEWAY,
    /* to control and broker: host.id, host.exit_status (as waitpid) */
    PARENT_NOTE_HOST_EXIT,
    /* to control: text = provider, credential.data = sealed model key from the environment, of
       config.tenant */
    PARENT_NOTE_CREDENTIAL,
    /* to control: drain and exit (SIGTERM) */
    PARENT_NOTE_STOP
};

struct parent_host {
    uint32_t id;
    int32_t exit_status;
    char tenant[ID_MAX];
};

struct parent_sandbox {
    struct sandbox_spec spec;
    uint32_t grace_ms;
    char socket[SOCKET_PATH_MAX];
    char from[ID_MAX]; /* FORK */
    bool live;         /* reply to FORK */
};

struct parent_image {
    struct sandbox_spec spec;
    char packages[PACKAGES_TEXT_MAX]; /* canonical (sandbox/packages.h) */
};

struct parent_credential {
    char session[ID_MAX];
    uint32_t length;
    unsigned char data[PARENT_SEALED_MAX];
};

struct parent_config {
    char data_dir[PARENT_TEXT_MAX];    /* as this role sees it */
    char runtime_dir[PARENT_TEXT_MAX]; /* Node, Pi, catalogue */
    char objects_dir[PARENT_TEXT_MAX]; /* the object store; to control only */
    char provider[32];                 /* the sandbox provider chosen */
    struct sandbox_caps caps;
    bool single_tenant;                /* one tenant in the database when the service started */
    char tenant[ID_MAX];               /* that tenant; "" otherwise. Environment keys are its own */
    bool zones_separated;              /* own uid per role */
    unsigned char seal_public_key[32]; /* vault seals are made with this */
    /* To control only, stable over restarts: for signed cursors and the cache of API keys. */
    unsigned char control_key[32];
    char allow_private[PARENT_TEXT_MAX * 4]; /* --allow-private as given, for the dial guard */
    uint64_t sandbox_memory_mib;             /* R51: for all sandboxes together */
    /* Where packages come from: host[:port],… that the broker's proxy for builds lets through. */
    char package_hosts[PARENT_TEXT_MAX * 4];
    char allow_images[PARENT_TEXT_MAX * 4]; /* --allow-image (images/name.h), real paths */
    char allow_mount[PARENT_TEXT_MAX * 4];  /* --allow-mount (sandbox/mounts.h), real paths */
    uint32_t retention_days;                /* R29: deleted sessions are purged after so many */
    bool allow_unenforced; /* limits that nothing enforces here are taken all the same */
    char listen_url[PARENT_TEXT_MAX];
    char config_text[PARENT_TEXT_MAX * 4]; /* remaining serve options as KEY=VALUE lines */
};

struct parent_message {
    uint32_t verb;              /* enum parent_verb */
    uint32_t id;                /* of the request; 0 in notes */
    int32_t status;             /* err, in replies */
    char code[ERR_CODE_MAX];    /* R10, in failed replies; "": the usual one of the status */
    char text[PARENT_TEXT_MAX]; /* reason in failed replies */
    union {
        struct parent_host host;
        struct parent_sandbox sandbox;
        struct sandbox_status status_of;
        uint64_t volume_bytes;
        struct parent_image image;
        struct parent_credential credential;
        struct parent_config config;
        struct {
            uint32_t from, total;
            struct sandbox_status item;
        } list;
    };
};

/* Puts the outcome into a reply, with the reason in the error slot when it is an error. */
static inline void parent_message_outcome(struct parent_message *m, err e)
{
    m->status = e;
    m->text[0] = m->code[0] = 0;
    if (e) {
        snprintf(m->text, sizeof m->text, "%.*s", (int)sizeof m->text - 1, err_text());
        snprintf(m->code, sizeof m->code, "%s", err_code());
    }
}

#endif
