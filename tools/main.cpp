#include <unistd.h>

#include <iostream>

#include "tools/command_line.hpp"

int main(int argc, char** argv) {
  return kvlease::run_command_line(argc, argv, std::cout, std::cerr, isatty(STDERR_FILENO) == 1);
}
