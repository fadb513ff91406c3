/* Test equipment: runs a script in place of host.mjs, as the launcher runs the host. The product
   has no way to do this.   confine_driver RUNTIME_DIR SCRIPT_DIR SCRIPT GATEWAY_SOCKET (descriptor
   3: the stream) */
#include <stdio.h>

#include "base/err.h"
#include "base/log.h"
#include "harness/launch.h"

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: confine_driver RUNTIME_DIR SCRIPT_DIR SCRIPT GATEWAY_SOCKET\n");
        return 2;
    }
    log_init("host", LOG_TEXT, LOG_INFO);
    struct host_launch l = {
        .runtime_dir = argv[1], .harness_dir = argv[2], .script = argv[3], .gateway = argv[4]};
    int status = 1;
    if (host_launch(&l, &status))
        fprintf(stderr, "%s\n", err_text());
    return status;
}
