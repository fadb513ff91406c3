/* Starts Node for one host, confined (ARCHITECTURE §2, facts: sandbox §1). Runs in a child of the
   parent, after setuid: makes namespaces in which only Node, its libraries, the Pi runtime, the
   host's script and the gateway socket exist, drops what it can do (no new privileges, seccomp,
   limits) and executes Node with its permission model on. What this machine does not allow is
   reported to the host in its last argument and by the host in hello.confinement; only a Node that
   cannot run is an error. Single-threaded; descriptor 3 is the stream socket to control. */
#ifndef HARNESS_LAUNCH_H
#define HARNESS_LAUNCH_H

#include "base/err.h"

#define HOST_FD 3

struct host_launch {
    const char *runtime_dir; /* node/, pi/, undici/ */
    const char *harness_dir; /* the host's JavaScript */
    const char *gateway;     /* path of the gateway's socket */
    const char *script;      /* name of the script in harness_dir */
};

/* Stays as a small process beside Node: passes on what Node writes to stderr as log lines, and
   returns Node's exit status as exit(3) would have it (128 + signal if killed). */
err host_launch(const struct host_launch *l, int *out_status);

/* The role "host": --runtime DIR --harness DIR --gateway PATH; other arguments are not looked at.
   The script is always host.mjs. Returns the exit status for main. */
int host_launcher_main(int argc, char **argv);

#endif
