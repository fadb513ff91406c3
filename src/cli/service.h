/* What serve and init share: the data directory, keys and the parent's options, made from the
 * command line. */
#ifndef CLI_SERVICE_H
#define CLI_SERVICE_H

#include "base/err.h"
#include "cli/command.h"
#include "cli/places.h"
#include "parent/data.h"
#include "parent/parent.h"

#define SERVICE_ROLE_ARGS 5
#define TOKEN_MAX 128

struct service_setup {
    struct data_dir data;
    struct places places;
    struct vault_key *key;
    char objects_dir[PATH_MAX];
    const char *role_args[SERVICE_ROLE_ARGS];
    struct parent_options options;
    char tenant[ID_MAX];   /* the only tenant, "" if several */
    char token[TOKEN_MAX]; /* the first API key, "" unless it was just made. Wipe it after use */
};

/* Locks DATA, makes keys, and runs the setup role, which makes the first tenant and key on an empty
   directory. `call` must have the options data, uid-base, runtime, harness, log-format
   and log-level. Close with service_close, also after an error. */
err service_open(const struct invocation *call, struct service_setup *out);
void service_close(struct service_setup *s);

#define SERVICE_OPTIONS                                                                            \
    OPTION_DATA,                                                                                   \
        {"objects", "FOLDER", NULL,                                                                \
         "where copies of logs and uploaded files go; default: objects/ in the data directory"},   \
        {"uid-base", "N", "64000", "as root: first of the user ids that the zones run as"},        \
        {"runtime", "DIR", NULL, "Node, Pi and ripgrep; default: beside the program"},             \
        {"harness", "DIR", NULL, "the Pi host's scripts; default: beside the program"},            \
        {"log-format", "FORMAT", "auto", "json, text, or auto: text on a terminal"},               \
    {                                                                                              \
        "log-level", "LEVEL", "info", "debug, info, warn or error"                                 \
    }

#endif
