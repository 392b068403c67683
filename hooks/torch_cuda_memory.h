// The memory of a session on a CUDA device: torch's native allocator behind door A
// (torch_cuda_allocator.h), which is opened if it is not open yet. Rules in training_memory.h.
//
// The session's peaks are its own: `torch.cuda.reset_peak_memory_stats()` and what it resets stay
// the program's. Reserved bytes are those of the native allocator; there is no reserved target.
#pragma once

#include <string>

#include "hooks/training_memory.h"

// For libraries that do not link this one. Null, and why, where there is no such device. The caller
// deletes it.
extern "C" lowtide::hooks::TrainingMemory* lowtide_cuda_training_memory(int device,
                                                                        std::string* why_not);
