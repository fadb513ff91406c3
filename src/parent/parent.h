/* The parent process of `pi-managed serve`: starts control and broker and starts them again when
   they die, starts hosts and makers when control asks, opens credentials for the broker. One
   thread, one poll loop. It never reads from a client, only fixed structs from its own children
   (request.h). */
#ifndef PARENT_PARENT_H
#define PARENT_PARENT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "parent/data.h"
#include "parent/request.h"

/* control = base, broker = base + 1, hosts from base + 2 */
#define PARENT_UID_BASE 64000

struct vault_key;

struct parent_options { /* all borrowed while parent_run runs */
    const struct data_dir *data;
    const char *runtime_dir, *harness_dir; /* real, absolute */
    const char *objects_dir;               /* the same; NULL: objects/ in the data directory */
    bool separate;                         /* roles_can_separate() said yes */
    uid_t uid_base;
    const struct vault_key *key;
    int listen_fd;
    int tls_cert_fd, tls_key_fd;  /* -1: no TLS */
    const char *const *role_args; /* for every role: log format and level */
    /* What control and broker get; the parent fills in paths, keys and caps' place. */
    struct parent_config config;
    /* Called when control answers for the first time. */
    void (*ready)(void *arg);
    void *arg;
};

/* Runs until SIGTERM or SIGINT and all children but sandboxes have ended: 0. An error when the
   service could not be started; the log says more. */
err parent_run(const struct parent_options *options);

/* Runs the one-shot role `setup` (cli/setup.c) as control would run: it makes or opens the
   database. The reply's credential.session = the only tenant ("" if several), credential.data = the
   first API key if it was just made. */
err parent_setup(const struct parent_options *options, struct parent_message *out_reply);

#endif
