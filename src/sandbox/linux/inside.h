/* What the maker does in the namespaces of a running sandbox, from a child that ends at once. */
#ifndef SANDBOX_LINUX_INSIDE_H
#define SANDBOX_LINUX_INSIDE_H

#include "base/err.h"

#include <stdint.h>

/* A TCP socket that listens on 127.0.0.1:port there: whoever holds it hears what the sandbox's
   programs say to that port, and nothing else of the sandbox. */
err inside_listen(int init_pidfd, uint16_t port, int *out_fd);

#endif
