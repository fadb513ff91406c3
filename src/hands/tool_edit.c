#include "hands/tools.h"
static void run(const struct tool_run *run, struct tool_result *out)
{
    (void)run;
    tool_error(out, "Tool edit is not known in this sandbox.");
}
const struct tool tool_edit = {.name = "edit", .run = run};
